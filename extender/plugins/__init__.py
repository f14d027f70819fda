"""The plugins: one module or package each, with everything of it. Begin with `taint_toleration`."""
