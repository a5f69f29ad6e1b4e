"""The leaderboard of the smallest adders: its protocol, its submission files, and running those
of others.
"""
