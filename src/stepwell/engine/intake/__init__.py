"""What comes into a run from outside its handlers: responses, inputs, timers that are due."""
