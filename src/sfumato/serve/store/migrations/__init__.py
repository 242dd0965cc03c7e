"""How the tables of the store came to be, step by step; `Store` takes every store to the last one."""
