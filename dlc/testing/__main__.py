"""`python -m dlc.testing PLUGIN`: test the ops of a plug-in on the targets of this machine."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from typing import Any, cast

import click

from dlc.errors import DlcError
from dlc.plugins.plugin import Plugin
from dlc.plugins.registry import contributions, register, statuses
from dlc.runtime.opencl.devices import all_devices
from dlc.testing.checks import checks_of
from dlc.testing.sample import Sample


@click.command("python -m dlc.testing")
@click.argument("plugin")
@click.option("--target", "targets", multiple=True, help="A target to test on; by default reference, cpu and opencl.")
@click.option("-k", "pattern", default="", help="Run only the checks whose name contains this text.")
@click.option("-v", "--verbose", is_flag=True, help="Print each check, and the tracebacks of failures.")
def main(plugin: str, targets: tuple[str, ...], pattern: str, verbose: bool) -> None:
    """Tests the ops of PLUGIN, the name of a plug-in or of the package that declares it.

    The checks are derived from the samples of the plug-in. Exit status: 1 if one fails, or if an op has no sample.
    """
    try:
        ops, samples = _find(plugin)
    except DlcError as error:
        raise click.ClickException(str(error)) from error
    missing = [op.name for op in ops if not any(sample.op is op for sample in samples)]
    available = targets or ("reference", "cpu", *(["opencl"] if all_devices() else []))
    passed, failed = 0, 0
    for check in checks_of(samples, available):
        if pattern not in str(check):
            continue
        try:
            check.run()
        except Exception as error:
            failed += 1
            click.echo(f"FAILED {check}: {type(error).__name__}: {error}", err=True)
            if verbose:
                traceback.print_exc()
        else:
            passed += 1
            if verbose:
                click.echo(f"passed {check}")
    for name in missing:
        click.echo(f"FAILED {name} has no sample", err=True)
    click.echo(f"{plugin}: {passed} checks passed, {failed + len(missing)} failed, on {', '.join(available)}")
    sys.exit(bool(failed or missing))


def _find(name: str) -> tuple[list[Any], list[Sample]]:
    """Return the ops and samples of a plug-in. Raises DlcError if there is none, or if it fails to load."""
    if not any(_is_named(status.plugin, name) for status in statuses()):
        declared = [p for p in cast("dict[str, object]", vars(_import(name))).values() if isinstance(p, Plugin)]
        if not declared:
            known = ", ".join(status.name for status in statuses()) or "none"
            raise DlcError(f"{name} declares no dlc.extend.Plugin; installed plug-ins: {known}")
        for plugin in declared:
            register(plugin)
    found = [status for status in statuses() if _is_named(status.plugin, name)]
    ops = [op for status, ops in contributions("ops") if status in found for op in ops]
    samples = [sample for status, samples in contributions("samples") if status in found for sample in samples]
    if failures := [f"{status.name}: {message}" for status in found for message in status.failures.values()]:
        raise DlcError("; ".join(failures))
    return ops, samples


def _is_named(plugin: Plugin | None, name: str) -> bool:
    return plugin is not None and name in (plugin.name, plugin.module.partition(".")[0], plugin.module)


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise DlcError(f"{name}: no plug-in or package has this name: {error}") from error


if __name__ == "__main__":
    main()
