"""The examination of a store: is everything in it as it must be?"""
