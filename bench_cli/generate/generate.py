"""``bench generate``: send a request to a deployed model and print the answer, as upstream's two client scripts do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import takes
from bench_cli.generate.options import GenerateOptions, ManyValuedCommand
from bench_errors import ExitStatus

if TYPE_CHECKING:
    from bench_cli.generate.server import GenerateServer


@cloup.command(
    name="generate",
    cls=ManyValuedCommand,
    epilog="""\b
Examples:
  bench generate -p "What is machine learning?" --streaming
  bench generate --url localhost:8001 --model tensorrt_llm --text "Born in France" --tokenizer_dir ./llama -o 32
  bench generate -p '["first", "second"]' --batch_inputs --stop_words "." "!"
  bench generate --url localhost:8001 --model tensorrt_llm --input_tokens_csv ids.csv -S --stop_after_ms 200 --request_id 7

\b
Exit status: 0 success, 1 the server refused the request or failed, or the answer is not as expected, 2 usage,
130 interrupted (the request is cancelled).""",
)
@takes(GenerateOptions)
def command(options: GenerateOptions) -> int:
    """Send a request to a deployed model (one per prompt of a list) and print the answer.

    Without --url the embedded pipeline is deployed for the length of the call. Only given options are sent, so the
    deployment's defaults apply to all others; an option that the model does not accept is an error.
    """
    from bench_cli.signals import signals_as_interrupt
    from serving.errors import RequestError

    options.check()
    with signals_as_interrupt():
        from bench_cli.generate.server import open_server

        with open_server(options.target) as server:
            try:
                return _generate(server, options)
            except RequestError as error:
                raise click.UsageError(str(error)) from error


def _generate(server: GenerateServer, options: GenerateOptions) -> int:
    from bench_cli.generate.expectation import find_problem, generated_ids, read_expectation
    from bench_cli.generate.output import Printer
    from bench_cli.generate.requests import make_requests
    from serving.client.request import ModelInterface
    from serving.client.triton import CallOptions, encode

    model = server.inspect(options.target.model or ("tensorrt_llm" if options.prompt.input_tokens_csv else "ensemble"))
    interface = ModelInterface(model.name, model.inputs, model.outputs)
    tokenizer = server.tokenizer_for(model)
    early_stop, overwrite_text = options.ending.early_stop(), options.answer.overwrite_output_text
    expectation = read_expectation(options.answer, early_stop is not None)
    call = CallOptions(early_stop, options.target.stream_timeout, overwrite_text)
    status: int = ExitStatus.VALID
    for index, request in enumerate(make_requests(options, model, tokenizer)):
        printer = Printer(request, model, tokenizer, overwrite_text)
        message = encode(interface, request, tokenizer)
        printer.begin()
        result = server.client.generate(interface, request, message, call, printer.add)
        printer.end(result)
        ids = generated_ids(request, model, tokenizer, result)
        problem = find_problem(request, result, ids, expectation, index)
        if problem is not None:
            click.echo(f"Error: {problem}", err=True)
            status = ExitStatus.FAILED
    return status
