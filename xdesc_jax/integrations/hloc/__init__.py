"""xdesc within hloc (Hierarchical-Localization): an extractor and a matcher that hloc loads, and its files.

In: hloc's configurations and data. Out: what hloc's `extract_features` and `match_features` write. Nothing here imports
hloc or torch before the extractor, the matcher or `register` is used.
"""
