"""Records every change of a process's cache and every decision, so that `extender replay` can repeat the decisions.

The cache's journal numbers its changes. The number of a change is called a moment. With each call and attempt, the
recorder writes the moment of the last change that the decision could see. A replay applies the changes up to that
moment to a table, and runs the same verb or scheduling cycle again. So the order in which threads ran does not matter.

`recorder` observes the changes and decisions of a running process, and writes them to a file. `lines` defines the
format of the file, and creates its lines. Start with `lines`. `offline/recording` reads the file.
"""
