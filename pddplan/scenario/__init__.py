"""What the user means: a scenario file read into immutable values, with every problem told at its place."""
