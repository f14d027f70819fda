"""CEL selectors of devices: values, types, compilation and evaluation."""
