"""The API: every kind of `perdure.dev/v1alpha1` as pydantic models, and the CRDs generated from them."""
