"""The methods library as a whole: small worlds in which recipes are compared, the evidence of that, and the page about
all recipes."""
