from masu.cli import main

main()
