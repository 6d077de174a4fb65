"""The chat template of models that Springtide makes itself.

ChatML with one token for each message header. Append-only over turns: a message's text depends on that message alone,
apart from the tools, which stand in the first (system) message. An assistant turn ends in `<|im_end|>`, which the
model samples itself.
"""

PAD = "<|pad|>"
END = "<|im_end|>"
ROLES = ("system", "user", "assistant", "tool")
SPECIAL_TOKENS = (PAD, END, *(f"<|{role}|>" for role in ROLES))

CHAT_TEMPLATE = """
{%- macro text(content) -%}
  {%- if content is string -%}{{ content }}
  {%- elif content -%}{%- for part in content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- if tools -%}
  {{- '<|system|>' -}}
  {%- if messages[0].role == 'system' -%}{{ text(messages[0].content) ~ '\\n\\n' }}{%- endif -%}
  {{- 'Tools:\\n' -}}
  {%- for tool in tools -%}{{ tool | tojson ~ '\\n' }}{%- endfor -%}
  {{- 'Call a tool by <tool_call>\\n{"name": "NAME", "arguments": {}}\\n</tool_call><|im_end|>' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if not (tools and loop.first and message.role == 'system') -%}
    {{- '<|' ~ message.role ~ '|>' ~ text(message.content) -}}
    {%- for call in message.tool_calls or [] -%}
      {%- set call = call.function if call.function else call -%}
      {%- set arguments = call.arguments if call.arguments is string else call.arguments | tojson -%}
      {{- '\\n' if message.content or not loop.first -}}
      {{- '<tool_call>\\n{"name": ' ~ call.name | tojson ~ ', "arguments": ' ~ arguments ~ '}\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}
"""
