"""`make bench`: how long decisions, verbs and the loop take, decisions beside the stock scheduler's own plugins."""
