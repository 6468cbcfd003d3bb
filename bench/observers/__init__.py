"""What it costs to observe a program, with masu and with others: script/bench-observers, script/soak-observers."""
