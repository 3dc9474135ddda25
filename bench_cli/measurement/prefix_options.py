"""Options of shared prefixes, and the reuse that they allow, in the words of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option
from bench_cli.measurement.options import MeasureOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workloads.elements.request import Request
    from workloads.prompts.shared_prefixes import GroupPrefix, SharedPrefixes

_LONGEST_TOKENS = 10_000_000
_MOST_GROUPS = 1_000_000


@dataclass(frozen=True)
class PrefixOptions(Concern, title="Shared prefixes, in front of the lengths above"):
    """The options as they were given; None is not given."""

    prefix_groups: int | None = option(
        None, type=click.IntRange(1, _MOST_GROUPS), metavar="G", help="Groups of prompts that share a prefix."
    )
    prefix_len: int | None = option(
        None, type=click.IntRange(1, _LONGEST_TOKENS), metavar="TOKENS", help="Length of the prefix of each group."
    )
    prompts_per_group: int | None = option(
        None,
        type=click.IntRange(1, _LONGEST_TOKENS),
        metavar="N",
        help="Exactly this many prompts of each group, in shuffled order, G·N in all. Default: a prompt's group is random.",
    )
    prefix_zipf: float | None = option(
        None,
        type=click.FloatRange(0, 20),
        metavar="S",
        help="Choose group k = 1, 2, … with a probability in proportion to k^-S. Default: all alike.",
    )
    system_prompt_len: int | None = option(
        None,
        type=click.IntRange(1, _LONGEST_TOKENS),
        metavar="TOKENS",
        help="Length of a system prompt that all prompts begin with, in front of the prefixes of groups.",
    )

    def shared(self, num_requests: int | None, max_input_len: int | None) -> SharedPrefixes | None:
        """The prefixes that the options describe; None for none. Raises UsageError and WorkloadError for contradictions."""
        from workloads.prompts.shared_prefixes import SharedPrefixes

        self._check_pairs()
        if self.prefix_groups is None and self.system_prompt_len is None:
            return None
        shared = SharedPrefixes(
            self.prefix_groups or 1,
            self.prefix_len or 0,
            self.system_prompt_len or 0,
            self.prompts_per_group,
            self.prefix_zipf,
        )
        shared.check()
        if shared.prompts is not None and num_requests not in (None, shared.prompts):
            raise click.UsageError(
                f"--num_requests {num_requests}: {self.prefix_groups} --prefix_groups of {self.prompts_per_group} "
                f"--prompts_per_group are {shared.prompts} requests; leave --num_requests out"
            )
        if max_input_len is not None and max_input_len <= shared.tokens:
            raise click.UsageError(
                f"--max_input_len {max_input_len}: prompts begin with {shared.tokens} shared tokens, so none is left to send"
            )
        return shared

    def _check_pairs(self) -> None:
        if self.prefix_groups is not None and self.prefix_len is None:
            raise click.UsageError("--prefix_groups needs --prefix_len, the length of a group's prefix in tokens")
        if self.prefix_groups is None:
            for name in ("prefix_len", "prompts_per_group", "prefix_zipf"):
                if getattr(self, name) is not None:
                    raise click.UsageError(f"--{name} needs --prefix_groups, the number of groups that share a prefix")
        if self.prefix_zipf is not None and self.prompts_per_group is not None:
            raise click.UsageError("--prefix_zipf and --prompts_per_group both set the prompts of a group; give one of them")


def with_prefixes(options: MeasureOptions, prefix: PrefixOptions) -> tuple[MeasureOptions, SharedPrefixes | None]:
    """The shared options and the prefixes, None for none. A number of prompts per group is the number of requests.

    Raises UsageError and WorkloadError for contradictions.
    """
    traffic = options.traffic
    prefixes = prefix.shared(traffic.num_requests, traffic.max_input_len)
    if prefixes is not None and prefixes.prompts is not None:
        options = replace(options, traffic=replace(traffic, num_requests=prefixes.prompts))
    return options, prefixes


def manifest_entry(shared: SharedPrefixes | None) -> dict[str, float | None]:
    """The options by name; nothing without shared prefixes, as before there were any."""
    if shared is None:
        return {}
    return {
        "prefix_groups": shared.groups if shared.prefix_tokens else None,
        "prefix_len": shared.prefix_tokens or None,
        "prompts_per_group": shared.prompts_per_group,
        "prefix_zipf": shared.zipf_exponent,
        "system_prompt_len": shared.system_tokens or None,
    }


def reuse_limit(
    shared: SharedPrefixes, requests: Sequence[Request], prefixes: Sequence[GroupPrefix]
) -> Mapping[str, float | None]:
    """What an infinite prefix cache can reuse of ``requests`` in their order, for the manifest; None where ids are unknown."""
    from workloads.prompts.shared_prefixes import prefix_reuse

    prompts = [request.input_ids for request in requests if request.input_ids is not None]
    if len(prompts) < len(requests):
        return {"shared_prefix_limit": None, "shared_prefix_common": None}
    reuse = prefix_reuse(prompts, prefixes, shared.system_tokens)
    return {"shared_prefix_limit": reuse.share, "shared_prefix_common": reuse.common_share}


def limit_text(shared: SharedPrefixes, requests: Sequence[Request], limit: Mapping[str, float | None]) -> str:
    """The line about ``requests`` and their ``reuse_limit`` before the run."""
    mean = sum(request.input_tokens or 0 for request in requests) / len(requests)
    share, common = limit["shared_prefix_limit"], limit["shared_prefix_common"]
    text = (
        f"Shared prefixes: prompts begin with {shared}, and have {mean:,.1f} tokens in all (mean). "
        f"An infinite prefix cache would have {share:.1%} of the prompt tokens."
    )
    if common is not None and common < 1:
        text += f" Only {common:.2%} of the prefixes' tokens are common: the tokenizer merges some with what follows."
    return text
