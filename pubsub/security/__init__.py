"""Who may enter and who may do what: keys, the file of who is authorized, and the decisions that follow from it."""
