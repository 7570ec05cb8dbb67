"""Language models: from a checkpoint to generated text on a CPU.

    checkpoints/   options and weights of GGUF files and Hugging Face folders
    families/      decoders and encoders as functions of dlc.nn, one file per family
    tokenizers/    text to token ids and back
    sampling.py    the choice of the next token, inside the compiled program

`cached_attention.py` attends over a KV cache that is written in place. `step_program.py` compiles the programs for one token,
for a prompt and for several texts, and `step_runner.py` runs them. `text_batch.py` decodes texts together that start and end
independently. `embedding_model.py` computes embeddings with an encoder.
"""
