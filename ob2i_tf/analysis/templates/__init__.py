"""HTML pages that need no network: one file, dark and light, usable by keyboard and on a phone."""

import functools

import jinja2


def render(template, **values) -> str:
    """A page from one of the templates in this folder; texts among the values are escaped."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment():
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('ob2i_tf.analysis'),
        autoescape=jinja2.select_autoescape(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies['json.dumps_kwargs'] = {'separators': (',', ':')}
    return environment
