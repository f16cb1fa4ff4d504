"""Prediction on images and whole slides, and the files it writes."""
