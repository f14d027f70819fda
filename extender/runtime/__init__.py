"""Clock, ticker, memory and the small protocols between rooms."""
