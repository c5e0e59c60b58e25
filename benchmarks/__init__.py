"""Speed measurements and test campaigns, each with one command."""
