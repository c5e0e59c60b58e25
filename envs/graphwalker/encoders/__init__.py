"""Patients as vectors: encoders of time series and of text, and the predictors that come with them."""
