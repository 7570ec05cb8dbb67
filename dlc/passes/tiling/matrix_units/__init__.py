"""Contractions of packed operands on the matrix units of a device (`MatrixUnitTiles`).

`matrix_products.py` matches the contractions, `choose_matrix_unit_tiles.py` chooses a plan, `matrix_tile_body.py`
generates the code.
"""
