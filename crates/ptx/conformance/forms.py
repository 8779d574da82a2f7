"""All instruction forms, each once."""

import calls
import matrices
import memory
import registers
import video
from form import FORMS

for part in (registers, video, memory, matrices, calls):
    part.add()
FORMS = list(dict.fromkeys(FORMS))
