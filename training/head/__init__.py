"""Heads of reward models: one file each, a class named as the file, with

    outputs                                       how many numbers the model gives (None: one per attribute, with ratings)
    ratings                                       whether `begin` learns from ratings of attributes
    begin(model, fit) -> nn.Module                what is trained, made of the model; `fit()` gives features and ratings to one that asks
    read(model, batch, *, temperature) -> TokenStats
    ranked(stats, batch) -> [R]                   what the pairwise loss puts in order
    reward(stats, batch) -> [R]                   the reward of every row
    extra(stats, batch) -> list[Terms]            losses beside the pairwise one
"""
