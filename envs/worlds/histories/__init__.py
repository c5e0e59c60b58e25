"""A generated world of long histories in a MEDS folder: what EHR-RAG's mechanisms are measured on."""
