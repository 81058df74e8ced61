"""The workflows of this deployment. Every module here is imported when a function starts.

Put yours here, and remove `claims.py`: it shows what there is.
"""
