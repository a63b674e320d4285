"""Keys, the access list (the file `authorized`), and the decisions about connections and messages by that list."""
