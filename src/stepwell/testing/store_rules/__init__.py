"""The rules that every store must keep, one module for each part of the store port."""
