"""Makers: worlds, pages, questions, families of problems, demonstrations, pairs. Item `index` is a function of its seed alone."""
