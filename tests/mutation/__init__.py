"""`make mutate`: changes the product in one place at a time, and looks whether a test notices.

mutmut supplies the operators; the runner is ours, because neither mutmut nor cosmic-ray can do all that is needed.
mutmut 3.8 changes only the bodies of undecorated functions, and much of this project's behaviour is in tables at the
top of a module; it selects tests by function, not by line; it draws no sample. cosmic-ray 8.7 writes each mutant into
the tree, starts the whole test command for each and uses no coverage; it changes no strings and no arguments.

`mutants` lists and draws mutants, `covering` finds out which test runs which line, `forks` runs a function in a child
process, `__main__` puts them together. Nothing is written into the tree: the child that tests a mutant imports the
changed module from memory. A mutant that behaves as the original does is reported as a survivor.
"""
