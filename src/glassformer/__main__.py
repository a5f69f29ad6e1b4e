"""python -m glassformer"""

from .cli import main

main()
