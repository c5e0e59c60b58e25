"""Errors a user can act on. Launchers print the sentence and exit with code 2."""


class BadInput(ValueError):
    """Input that cannot be used: the sentence names the file, row or key, and what to do."""


MEMORY = "lower trainer.rl.micro_tokens, engine.max_batch or env.in_flight"
# Module -> the extra that brings it; what is in no extra here is in the core.
EXTRAS = {
    **dict.fromkeys(
        ("torch", "transformers", "tokenizers", "peft", "trl", "accelerate", "datasets", "safetensors",
         "huggingface_hub", "sentence_transformers", "pyarrow", "matplotlib", "networkx", "sacrebleu",
         "rouge_score"), "train",
    ),
    "faiss": "faiss-cpu", "wandb": "wandb", "ray": "ray", "deepspeed": "deepspeed", "gguf": "smollm2",
    "fastapi": "service", "uvicorn": "service", "starlette": "service", "pydantic": "service",
    "verifiers": "verifiers",
}  # fmt: skip
# Errors of libraries that are not imported for their names' sake.
FATES = {
    "MemoryError": f"The memory is used up: {MEMORY}",
    "OutOfMemoryError": f"The memory of the GPU is used up: {MEMORY}",
    "EngineDeadError": "vLLM's engine has ended: see its message above",
}
# What gloo and NCCL say where another process of the run has ended, in a RuntimeError.
CUT_OFF = ("Connection closed by peer", "Connection reset by peer", "remote process exited")


def missing_extra(error: BaseException) -> str | None:
    """A sentence for a library that is not installed and that an extra brings; None for any other error."""
    module = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or module not in EXTRAS:
        return None
    other = " (on a GPU ghar[faiss-gpu], never both)" if module == "faiss" else ""
    return f"This needs {module}, which is not installed: pip install 'ghar[{EXTRAS[module]}]'{other}."


def fate(error: BaseException) -> str | None:
    """A sentence for an error, or one that it followed from, that is no fault of the code: what was saved stays."""
    if wanted := missing_extra(error):
        return wanted
    cause = FATES.get(type(error).__name__)
    if type(error).__name__ == "WrongWeights":
        return f"{error} What was saved stays. Start again with engine=hf, which holds no copy of the weights."
    if cause is None and "can't allocate memory" in str(error):  # torch on a CPU
        cause = FATES["MemoryError"]
    if isinstance(error, RuntimeError) and any(words in str(error) for words in CUT_OFF):
        cause = "Another process of this run has ended: see what it says"
    if cause is not None:
        first_line = (str(error).splitlines() or [""])[0][:200]
        return f"{cause}, then start the same command again ({first_line})."
    before = error.__cause__ or error.__context__
    return None if before is None else fate(before)
