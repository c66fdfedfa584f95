"""Statements of other people about attention and its training, held against settings of ours."""
