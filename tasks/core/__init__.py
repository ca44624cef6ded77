"""The ground floor: errors with a sentence, where things are, text that a terminal may show."""
