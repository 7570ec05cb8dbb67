"""What Python computes of a program: ops that give what data decides, text, pictures; and what loops and branches mean.

selection.py        the functions by the names of their ops
text_functions.py   those on text; texts.py: a text as a number
pictures.py         files of pictures
control.py          loops, what a failing branch says, and what is printed
"""
