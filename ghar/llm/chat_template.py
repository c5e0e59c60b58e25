"""Freezing a chat template: its arguments, its system message and its date become part of it.

A frozen template gives the same prompt on every day, and everyone who loads the saved tokenizer reads the same one:
engines, SFT, exports, servers.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any

from ghar.errors import BadInput

DATE = datetime.date(2024, 7, 26)  # what Llama 3.2's template says where there is no clock
CLOCK = "strftime_now"  # the only way by which transformers gives a template the time
DIRECTIVES = ("%-d", "%-m", *(f"%{letter}" for letter in "aAbBdejmyYHIMSp"))
FROZEN = "{#- frozen by GHAR -#}"
CONTENT = "Ghar7sentinel"  # stands in a message where a template is looked at


def freeze(tokenizer: Any, arguments: Mapping[str, Any] | None, system: str | None, path: str) -> None:
    """Set `tokenizer.chat_template` to its frozen form. One that was frozen before stays as it is.

    BadInput for arguments that the template does not read, for a system message that it does not show, and for a
    template that cannot show one message of a user.
    """
    template = template_of(tokenizer)
    if template is None:
        if arguments or system:
            key = "template_arguments" if arguments else "system_message"
            raise BadInput(f"model.{key} is set, but {path} has no chat template: set it to null.")
        return
    if template.startswith(FROZEN):
        return
    lines = [_assign(name, value) for name, value in _check_arguments(template, arguments or {}, path).items()]
    if system is not None:
        message = json.dumps([{"role": "system", "content": system}])
        lines.append(f'{{%- if messages[0]["role"] != "system" %}}{{%- set messages = {message} + messages %}}')
        lines.append("{%- endif %}")
    if CLOCK in template:
        lines.append(_clock())
    if lines:
        tokenizer.chat_template = FROZEN + "".join(lines) + template
    _check(tokenizer, system, path)


def template_of(tokenizer: Any) -> str | None:
    """The template of a conversation without tools; None where there is none."""
    template = getattr(tokenizer, "chat_template", None)
    return (template.get("default") if isinstance(template, dict) else template) or None


def render(tokenizer: Any, *messages: tuple[str, str], prompt: bool) -> str:
    """The text of (role, content) messages; prompt: with the beginning of the reply."""
    turns = [{"role": role, "content": content} for role, content in messages]
    return tokenizer.apply_chat_template(turns, add_generation_prompt=prompt, tokenize=False)


def _check_arguments(template: str, arguments: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The arguments, all of which the template reads."""
    if not arguments:
        return arguments
    from jinja2 import meta
    from transformers.utils.chat_template_utils import _compile_jinja_template

    environment: Any = _compile_jinja_template(template).environment
    names = meta.find_undeclared_variables(environment.parse(template))
    if unknown := sorted(set(arguments) - names):
        given = {"messages", "add_generation_prompt", "bos_token", "eos_token", "raise_exception", "namespace", CLOCK}
        options = ", ".join(sorted(names - given)) or "none"
        raise BadInput(
            f"model.template_arguments names {unknown[0]}, which the chat template of {path} does not read: "
            f"it reads {options}."
        )
    return arguments


def _assign(name: str, value: Any) -> str:
    return f"{{%- set {name} = {'none' if value is None else json.dumps(value)} %}}"


def _clock() -> str:
    """A macro that stands in the clock's place and always tells `DATE`."""
    noon = datetime.datetime.combine(DATE, datetime.time(12))
    replacements = "".join(f' | replace("{part}", "{noon.strftime(part)}")' for part in DIRECTIVES)
    return f"{{%- macro {CLOCK}(form) -%}}{{{{- form{replacements} -}}}}{{%- endmacro %}}"


def _check(tokenizer: Any, system: str | None, path: str) -> None:
    from jinja2 import TemplateError

    try:
        text = render(tokenizer, ("user", CONTENT), prompt=True)
    except (TemplateError, TypeError, KeyError) as error:
        refused = "no system message: set model.system_message=null" if system else "no single message of a user"
        raise BadInput(f"The chat template of {path} takes {refused} ({error}).") from None
    if CONTENT not in text:
        raise BadInput(f"The chat template of {path} leaves out what the user says: choose another model.")
    if system is not None and system.strip() not in text:
        raise BadInput(f"The chat template of {path} shows no system message: set model.system_message=null.")
