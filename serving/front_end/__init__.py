"""An OpenAI front end before Triton: models, chat completions and completions, for every client of OpenAI's API.

https://platform.openai.com/docs/api-reference. It has the tokenizer: prompts go to the core model as token ids, one exchange
a request, and its token ids become text here, as in ``tensorrt_llm_bls``. A client that leaves ends its request at the engine.

``settings.py`` has the addresses and bounds. ``bodies.py`` reads a request and ``generation.py`` says what it requests;
``prompts.py`` makes token ids; ``core_request.py`` and ``core_client.py`` are the exchange with Triton, for which
``core_events.py`` has a cheaper way; ``choices.py`` makes text and finish reasons of token ids; ``formats.py`` has the two
forms of an answer; ``service.py`` combines these; ``__main__.py`` is the
process, which the server's supervisor starts and ends.
"""
