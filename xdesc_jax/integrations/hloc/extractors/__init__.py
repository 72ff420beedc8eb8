"""What hloc's loader looks through for the extractor; `xdesc` is its name."""
