"""Models to serve that are only a tokenizer and a chat template, in the shapes of public families."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mtplx.runtime.loading.tokenizer import load_tokenizer
from mtplx.runtime.server.served import ServedModel
from tests.support.tiny_tokenizer import (
    END_OF_TEXT,
    TURN_END,
    TURN_START,
    make_tokenizer,
    special_ids,
)

if TYPE_CHECKING:
    from pathlib import Path

VOCAB_SIZE = 320

_LOOP = "{%- for m in messages %}"
_END = "{%- endfor %}"

CHATML = (
    _LOOP
    + "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    + _END
    + "{%- if "
    "add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

# One system message, first; arguments as they were sent; reasoning that can be turned off.
QWEN3 = (
    "{%- set with_system = messages[0].role == 'system' %}"
    "{%- if tools or with_system %}{{- '<|im_start|>system\\n' }}"
    "{%- if with_system %}{{- messages[0].content }}{%- endif %}"
    "{%- if tools %}{{- '\\n# Tools\\n<tools>' }}{%- for t in tools %}{{- '\\n' + (t | tojson) }}"
    '{%- endfor %}{{- \'\\n</tools>\\n<tool_call>\\n{"name": NAME, "arguments": OBJECT}\\n'
    "</tool_call>' }}{%- endif %}{{- '<|im_end|>\\n' }}{%- endif %}"
    + _LOOP
    + "{%- if m.role == 'system' %}{%- if not loop.first %}"
    "{{- raise_exception('System message must be at the beginning.') }}{%- endif %}"
    "{%- elif m.role == 'tool' %}"
    "{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}"
    "{%- elif m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' + m.content }}"
    "{%- for tool_call in m.tool_calls or [] %}{%- set f = tool_call.function %}"
    '{{- \'<tool_call>\\n{"name": "\' + f.name + \'", "arguments": \' }}'
    "{{- f.arguments if f.arguments is string else f.arguments | tojson }}{{- '}\\n</tool_call>' }}"
    "{%- endfor %}{{- '<|im_end|>\\n' }}"
    "{%- else %}{{- '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}"
    + _END
    + "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '\\n</think>\\n\\n' }}"
    "{%- endif %}{%- endif %}"
)

# Arguments as elements, so they must be an object.
QWEN3_CODER = (
    "{%- if tools %}{{- '<|im_start|>system\\n<tools>' }}{%- for t in tools %}"
    "{{- '\\n' + t.function.name + ': ' }}{%- for name, p in t.function.parameters.properties | items %}"
    "{{- name + ' ' + p.type + ', ' }}{%- endfor %}{%- endfor %}"
    "{{- '\\n</tools>\\n<tool_call>\\n<function=NAME>\\n<parameter=P>\\nVALUE\\n</parameter>\\n"
    "</function>\\n</tool_call><|im_end|>\\n' }}{%- endif %}"
    + _LOOP
    + "{{- '<|im_start|>' + m.role + '\\n' + m.content }}"
    "{%- for tool_call in m.tool_calls or [] %}"
    "{{- '<tool_call>\\n<function=' + tool_call.function.name + '>\\n' }}"
    "{%- for name, value in tool_call.function.arguments | items %}"
    "{{- '<parameter=' + name + '>\\n' + (value if value is string else value | tojson) + '\\n"
    "</parameter>\\n' }}{%- endfor %}{{- '</function>\\n</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}"
    + _END
    + "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

GLM = (
    "{%- if tools %}{{- '<|system|>\\n<tools>' }}{%- for t in tools %}{{- '\\n' + (t | tojson) }}"
    "{%- endfor %}{{- '\\n</tools>\\n<tool_call>NAME\\n<arg_key>K</arg_key>\\n<arg_value>V</arg_value>\\n"
    "</tool_call>' }}{%- endif %}"
    + _LOOP
    + "{%- if m.role == 'tool' %}{{- '<|observation|>\\n<tool_response>\\n' + m.content + '\\n"
    "</tool_response>' }}{%- else %}{{- '<|' + m.role + '|>\\n' + m.content }}"
    "{%- for call in m.tool_calls or [] %}{{- '\\n<tool_call>' + call.function.name }}"
    "{%- for k, v in call.function.arguments.items() %}{{- '\\n<arg_key>' + k + '</arg_key>\\n"
    "<arg_value>' + (v if v is string else v | tojson) + '</arg_value>' }}{%- endfor %}"
    "{{- '\\n</tool_call>' }}{%- endfor %}{%- endif %}"
    + _END
    + "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- if enable_thinking is defined and not "
    "enable_thinking %}{{- '\\n<think></think>' }}{%- endif %}{%- endif %}"
)

# Arguments are joined to text, so they must be text.
DEEPSEEK = (
    "{{- bos_token }}{%- for m in messages if m.role == 'system' %}{{- m.content }}{%- endfor %}"
    "{%- if tools %}{{- '\\n## Tools\\n' }}{%- for t in tools %}{{- t.function | tojson }}{%- endfor %}"
    "{%- endif %}" + _LOOP + "{%- if m.role == 'user' %}{{- '<｜User｜>' + m.content }}"
    "{%- elif m.role == 'tool' %}{{- '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}"
    "{%- elif m.role == 'assistant' %}{{- '<｜Assistant｜></think>' + m.content }}"
    "{%- if m.tool_calls %}{{- '<｜tool▁calls▁begin｜>' }}{%- for c in m.tool_calls %}"
    "{{- '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' + c.function.arguments + "
    "'<｜tool▁call▁end｜>' }}{%- endfor %}{{- '<｜tool▁calls▁end｜>' }}{%- endif %}"
    "{{- eos_token }}{%- endif %}"
    + _END
    + "{%- if add_generation_prompt %}{{- '<｜Assistant｜>' + ('<think>' if thinking else '</think>') }}"
    "{%- endif %}"
)

# Strictly alternating, ids of nine letters and digits, the call as an object.
MISTRAL = (
    "{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}"
    "{%- set state = namespace(users=0, answers=0) %}"
    + _LOOP
    + "{%- if m.role == 'user' %}{%- if state.users != state.answers %}"
    "{{- raise_exception('Conversation roles must alternate user and assistant') }}{%- endif %}"
    "{%- set state.users = state.users + 1 %}{{- '[INST]' + m.content + '[/INST]' }}"
    "{%- elif m.role == 'system' %}{{- '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}"
    "{%- elif m.role == 'tool' %}{{- '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}"
    "{%- elif m.tool_calls %}{%- for c in m.tool_calls %}{%- if c.id | length != 9 %}"
    "{{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{%- endif %}"
    "{{- '[TOOL_CALLS]' + c.function.name + '[ARGS]' + (c.function.arguments | tojson) }}{%- endfor %}"
    "{%- else %}{%- set state.answers = state.answers + 1 %}{{- m.content + eos_token }}{%- endif %}"
    + _END
)

# Tool results as JSON text, and a developer of its own.
LLAMA = (
    "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}"
    "{%- if messages[0].role in ['system', 'developer'] %}{{- messages[0].content | trim }}{%- endif %}"
    "{%- for t in tools or [] %}{{- t | tojson }}{%- endfor %}{{- '<|eot_id|><|python_tag|>' }}"
    + _LOOP
    + "{%- if m.role in ['system', 'developer'] and loop.first %}"
    "{%- elif m.role == 'tool' %}"
    "{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + (m.content | tojson) + '<|eot_id|>' }}"
    "{%- elif m.tool_calls %}{%- set f = m.tool_calls[0].function %}"
    '{{- \'<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "\' + f.name + \'", '
    "\"parameters\": ' + (f.arguments | tojson) + '}<|eot_id|>' }}"
    "{%- else %}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + (m.content | trim) + "
    "'<|eot_id|>' }}{%- endif %}"
    + _END
    + "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{%- endif %}"
)

TEMPLATES = {
    "chatml": CHATML,
    "qwen3": QWEN3,
    "qwen3_coder": QWEN3_CODER,
    "glm": GLM,
    "deepseek": DEEPSEEK,
    "mistral": MISTRAL,
    "llama": LLAMA,
}


def make_model(
    folder: Path,
    template: str | None,
    *,
    special: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
) -> ServedModel:
    """A model of bytes: every byte is a token, and so are `special` and `words` (added, not special)."""
    tokenizer = make_tokenizer(260)
    tokenizer.add_special_tokens(list(special))
    tokenizer.add_tokens(list(words))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "bos_token": TURN_START,
        "model_max_length": 10**6,
        "clean_up_tokenization_spaces": False,
    }
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    ids = special_ids(260)
    ends = (ids[TURN_END], ids[END_OF_TEXT])
    return ServedModel(
        name=folder.name,
        path=folder,
        tokenizer=load_tokenizer(folder, ends),
        family="test",
        tier="no-mtp-heads",
        vocab_size=VOCAB_SIZE,
        context_length=None,
        eos_token_ids=ends,
        has_head=False,
        max_depth=0,
        sampler_defaults={},
    )


def make_tool(name: str, **properties: str) -> dict[str, Any]:
    """A function tool whose parameters all are required."""
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": schema}}


WEATHER = make_tool("get_weather", city="string")
ADD = make_tool("add", a="integer", b="integer")
WRITE = make_tool("write_file", path="string", content="string")
TOOLS = [WEATHER, ADD, WRITE]
