"""Texts: one module per data set, with its facts (``SOURCE``) and its reader (``read``).

:mod:`lresnet.data.registry` discovers the modules. A module imports torch and NumPy inside its functions only, so that
all names are known without them.
"""
