"""What the tracer and the kinds of program share: values, names, and the two interfaces between them."""
