"""`make bench`: how long decisions and verbs take, beside the stock scheduler's own plugins."""
