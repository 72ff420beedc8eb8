"""What hloc's loader looks through for the matcher; `xdesc` is its name."""
