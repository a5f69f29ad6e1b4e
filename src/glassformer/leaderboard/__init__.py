"""The leaderboard of the smallest adders: its protocol, submission files, running others'."""
