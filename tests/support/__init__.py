"""What several rooms of the tests use: servers, programs to run, stores that fail on purpose, golden runs."""
