"""Templates say what they say by `transformers`, and nothing is open to them that its sandbox closes."""

from functools import cache

import pytest
from jinja2 import TemplateError
from renderlab.generated import Generator
from renderlab.vocabularies import FAMILIES, template_of
from transformers.utils.chat_template_utils import _compile_jinja_template

from dataserver.render.conversation import conversation_of
from dataserver.render.sandbox import compiled

ours, theirs = cache(compiled), cache(_compile_jinja_template)
NAMES = [*(family.template for family in FAMILIES), "qwen2_5", "llama3_1", "phi3", "cohere2", "lfm2"]


def said(template, variables) -> str:
    try:
        return template.render(variables)
    except (TemplateError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_templates_say_what_they_say_by_transformers(name):
    rows = Generator(seed=3, calls=2, misleading=True)
    source = template_of(name)
    for _ in range(40):
        given = conversation_of(rows.row())
        variables = {
            "messages": list(given.messages), "tools": list(given.tools), "bos_token": "<s>", "eos_token": "</s>",
            "strftime_now": lambda form: form,
        }  # fmt: skip
        assert said(ours(source), variables) == said(theirs(source), variables)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages[0].__class__ }}",
        "{{ messages[0]['__class__'] }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'b'}) }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ '{a.__class__}'.format_map({'a': messages}) }}",
        "{{ namespace(a=1).__init__ }}",
        "{{ (messages | map(attribute='__class__') | list)[0] }}",
        "{% for message in messages %}{{ loop.__class__ }}{{ loop._iterator }}{% endfor %}",
    ],
)
def test_what_the_sandbox_closes_stays_closed(template):
    variables = {"messages": [{"role": "a", "content": "b"}]}
    found = said(ours(template), variables)
    assert found == said(theirs(template), variables)
    assert "<class" not in found
    assert variables == {"messages": [{"role": "a", "content": "b"}]}


@pytest.mark.parametrize(
    "template",
    [
        "{{ message.items }} {{ message.keys() | list }} {{ message.get('role') }}",
        "{{ message.absent is defined }} {{ message.absent }} {{ message['absent'] }}",
        "{{ 'a,b'.split(',') }} {{ '{} {}'.format(1, 2) }} {{ 'aXb'.absent is defined }}",
        "{% for call in [1, 2, 3] %}{{ loop.index0 }}{{ loop.last }}{{ loop.previtem }}{{ 'x'.upper() }}{% endfor %}",
        "{% set ns = namespace(found=none) %}{% set ns.found = 1 %}{{ ns.found }} {{ ns.absent is defined }}",
    ],
)
def test_fields_methods_loops_and_namespaces_are_looked_up_as_jinja_does(template):
    variables = {"message": {"role": "user", "items": 3}}
    wanted = theirs(template).render(variables)
    found = ours(template).render(variables)
    assert found.split(" at 0x")[0] == wanted.split(" at 0x")[0]
