"""kvbook: the parts of The KV Cache Book that its chapters import, built on `kvlib`.

figures    drawings
explorers  sliders
exercises  the checkers of the exercises, and the reader's progress
museum     bugs that shipped, as changes of kvlib that can be switched on
course     the chapters as a course for nbgrader
grade      a notebook's answers, graded in a separate kernel
"""
