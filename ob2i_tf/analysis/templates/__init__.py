"""HTML pages that need no network: one file, dark and light, usable by keyboard and on a phone."""

import jinja2

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader('ob2i_tf.analysis'),
    autoescape=jinja2.select_autoescape(),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.policies['json.dumps_kwargs'] = {'separators': (',', ':')}


def render(template, **values) -> str:
    """A page from one of the templates in this folder; texts among the values are escaped."""
    return _ENVIRONMENT.get_template(template).render(values)
