"""All instruction forms, each once."""

import matrices
import memory
import registers
from form import FORMS

for part in (registers, memory, matrices):
    part.add()
FORMS = list(dict.fromkeys(FORMS))
