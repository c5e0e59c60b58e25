"""Speed alone: trees of rows, fused LoRA, heads in chunks, a short last layer; numbers are those of the direct way."""
